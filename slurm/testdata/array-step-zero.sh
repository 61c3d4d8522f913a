#!/bin/sh
#SBATCH --array=1-5:0
sleep 1
