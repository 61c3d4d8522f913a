#!/bin/sh
#SBATCH --dependency=singleton
sleep 1
