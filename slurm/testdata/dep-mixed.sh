#!/bin/sh
#SBATCH --dependency=afterok:3?afterany:3,after:3
sleep 1
