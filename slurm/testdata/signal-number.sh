#!/bin/sh
#SBATCH --signal=10
sleep 1
