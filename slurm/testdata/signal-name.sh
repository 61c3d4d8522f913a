#!/bin/sh
#SBATCH --signal=USR1@30
sleep 1
