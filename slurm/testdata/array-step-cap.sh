#!/bin/sh
#SBATCH --array=0-31:8%2
sleep 1
