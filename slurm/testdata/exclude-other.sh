#!/bin/sh
#SBATCH -x nix
sleep 1
