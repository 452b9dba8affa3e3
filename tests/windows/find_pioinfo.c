/*
 * Wine's ucrtbase has other machine code than Microsoft's, in which Ruby looks for __pioinfo. Here it is found in the data:
 * a pointer to a table whose entry of a descriptor just opened has that descriptor's handle and is marked as open.
 */
static ioinfo **
find_pioinfo_in_data(void)
{
    char *base = (char *)GetModuleHandle(UCRTBASE);
    IMAGE_NT_HEADERS *headers = (IMAGE_NT_HEADERS *)(base + ((IMAGE_DOS_HEADER *)base)->e_lfanew);
    IMAGE_SECTION_HEADER *section = IMAGE_FIRST_SECTION(headers);
    IMAGE_SECTION_HEADER *end = section + headers->FileHeader.NumberOfSections;
    ioinfo **found = NULL;
    const int fd = _open("NUL", O_RDONLY);
    const intptr_t handle = _get_osfhandle(fd);

    for (; section < end && !found; section++) {
        char **at = (char **)(base + section->VirtualAddress);
        char **limit = (char **)((char *)at + section->Misc.VirtualSize) - 1;
        if (!(section->Characteristics & IMAGE_SCN_MEM_WRITE)) continue;
        for (; at <= limit && !found; at++) {
            size_t extra;
            if (!*at || IsBadReadPtr(*at, (fd + 1) * (sizeof(ioinfo) + 64))) continue;
            for (extra = 0; extra <= 64 && !found; extra += sizeof(void *)) {
                ioinfo *entry = (ioinfo *)(*at + fd * (sizeof(ioinfo) + extra));
                if (entry->osfhnd == handle && (entry->osfile & 0x01)) found = (ioinfo **)at;
            }
        }
    }
    _close(fd);
    return found;
}
