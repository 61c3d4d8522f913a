#!/bin/sh
# args: --time=12
# env: SBATCH_TIMELIMIT=11
#SBATCH -t 5
sleep 1
