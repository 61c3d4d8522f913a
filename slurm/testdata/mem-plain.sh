#!/bin/sh
#SBATCH --mem=512
sleep 1
