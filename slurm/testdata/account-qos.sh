#!/bin/sh
#SBATCH --account=lab
sleep 1
