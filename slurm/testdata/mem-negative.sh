#!/bin/sh
#SBATCH --mem=-1
sleep 1
