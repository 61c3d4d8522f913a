#!/bin/sh
#SBATCH --dependency=aftercorr:3
sleep 1
