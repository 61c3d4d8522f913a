#!/bin/sh
#SBATCH --dependency=expand:3
sleep 1
