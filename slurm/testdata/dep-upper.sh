#!/bin/sh
#SBATCH --dependency=AFTEROK:3
sleep 1
