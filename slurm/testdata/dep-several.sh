#!/bin/sh
#SBATCH --dependency=afterok:3:3
sleep 1
