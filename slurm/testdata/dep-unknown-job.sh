#!/bin/sh
#SBATCH --dependency=afterok:99999
sleep 1
