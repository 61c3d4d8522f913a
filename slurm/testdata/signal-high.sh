#!/bin/sh
#SBATCH --signal=99
sleep 1
