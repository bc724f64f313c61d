"""The routes under `/v1`; `slimreid.serve.schemas` lists them all."""
