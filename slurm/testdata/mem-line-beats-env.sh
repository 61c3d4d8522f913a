#!/bin/sh
# args: --mem=3G
# env: SBATCH_MEM_PER_CPU=512
sleep 1
