#!/bin/sh
#SBATCH --array=1,3,5
sleep 1
