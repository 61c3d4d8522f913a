#!/bin/sh
# env: SBATCH_GPUS=2 SBATCH_JOB_NAME=fromenv
sleep 1
