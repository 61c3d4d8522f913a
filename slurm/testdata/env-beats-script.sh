#!/bin/sh
# env: SBATCH_TIMELIMIT=11 SBATCH_PARTITION=debug
#SBATCH -t 5 -p gpu
sleep 1
