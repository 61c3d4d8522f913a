#!/bin/sh
#SBATCH --open-mode=append
sleep 1
