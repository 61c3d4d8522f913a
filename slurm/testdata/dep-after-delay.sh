#!/bin/sh
#SBATCH --dependency=after:3+5
sleep 1
