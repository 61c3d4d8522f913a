#!/bin/sh
# args: --mem-per-cpu=1G
#SBATCH --mem=4G
sleep 1
