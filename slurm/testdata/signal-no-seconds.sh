#!/bin/sh
#SBATCH --signal=USR1@
sleep 1
