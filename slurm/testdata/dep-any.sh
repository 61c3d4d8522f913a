#!/bin/sh
#SBATCH --dependency=afterany:3
sleep 1
