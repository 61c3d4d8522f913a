#!/bin/sh
#SBATCH --mem=4GB
sleep 1
