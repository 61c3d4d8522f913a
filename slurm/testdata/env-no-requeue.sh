#!/bin/sh
# env: SBATCH_NO_REQUEUE=1
#SBATCH --requeue
sleep 1
