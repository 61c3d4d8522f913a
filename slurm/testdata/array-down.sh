#!/bin/sh
#SBATCH --array=3-1
sleep 1
