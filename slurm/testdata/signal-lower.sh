#!/bin/sh
#SBATCH --signal=sigusr1
sleep 1
