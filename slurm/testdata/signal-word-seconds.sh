#!/bin/sh
#SBATCH --signal=USR1@x
sleep 1
