#!/bin/sh
#SBATCH --nix=1
sleep 1
