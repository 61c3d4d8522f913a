#!/bin/sh
# args: --requeue
#SBATCH --no-requeue
sleep 1
