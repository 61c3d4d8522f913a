#!/bin/sh
#SBATCH --array=0-3%0
sleep 1
