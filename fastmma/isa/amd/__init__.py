"""Matrix instructions of AMD's GPUs: v_mfma and v_smfmac of CDNA, v_wmma and v_swmmac of RDNA."""
