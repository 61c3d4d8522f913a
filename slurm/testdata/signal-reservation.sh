#!/bin/sh
#SBATCH --signal=R:USR2@10
sleep 1
