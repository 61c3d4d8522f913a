#!/bin/sh
#SBATCH --dependency=afterok:abc
sleep 1
