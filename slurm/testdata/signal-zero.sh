#!/bin/sh
#SBATCH --signal=0
sleep 1
