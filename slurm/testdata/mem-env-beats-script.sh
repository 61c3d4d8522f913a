#!/bin/sh
# env: SBATCH_MEM_PER_CPU=512
#SBATCH --mem=4G
sleep 1
