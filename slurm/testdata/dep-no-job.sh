#!/bin/sh
#SBATCH --dependency=afterok
sleep 1
