#!/bin/sh
#SBATCH --dependency=afternotok:3
sleep 1
