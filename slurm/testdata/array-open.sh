#!/bin/sh
#SBATCH --array=1-
sleep 1
