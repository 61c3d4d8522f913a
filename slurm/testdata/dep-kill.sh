#!/bin/sh
#SBATCH --dependency=afterok:3 --kill-on-invalid-dep=yes
sleep 1
