#!/bin/sh
#SBATCH --begin=020331
sleep 1
