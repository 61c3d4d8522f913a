#!/bin/sh
#SBATCH --array=0-10000000
sleep 1
