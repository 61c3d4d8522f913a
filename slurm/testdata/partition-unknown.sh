#!/bin/sh
#SBATCH -p nix
sleep 1
