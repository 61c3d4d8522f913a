#!/bin/sh
#SBATCH --dependency=after:3
sleep 1
