#!/bin/sh
#SBATCH --reservation=nix
sleep 1
