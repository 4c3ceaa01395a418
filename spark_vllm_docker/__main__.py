"""`python -m spark_vllm_docker`."""

from spark_vllm_docker.cli.entry import main

if __name__ == "__main__":
    main()
